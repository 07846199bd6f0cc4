"""Members that are threads of Kafka Streams applications."""
